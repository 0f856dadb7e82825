"""What gateways send us: stored before it is answered; MOs taken in once, long ones joined."""

"""Requests of gateways: stored before they are answered; MOs taken in once, long ones joined."""

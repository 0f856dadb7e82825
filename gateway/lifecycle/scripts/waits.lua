-- Whether anything of a gateway is to be written now. ARGV: gateway. Returns 1 or 0.
return is_waiting(ARGV[1], {'schedule', 'claimed', 'submit-due'}) and 1 or 0

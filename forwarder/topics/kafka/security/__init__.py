"""How the brokers are secured: TLS, who logs in and by which token, what each stage may do, why nobody is let in."""

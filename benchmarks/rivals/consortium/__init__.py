"""A consortium's bad hour, for SecureD-FL and its rivals alike: real deployments on machines made of name spaces."""

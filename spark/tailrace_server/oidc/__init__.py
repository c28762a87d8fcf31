"""Bearer tokens of an OpenID Connect issuer: its keys, and whose a token is."""

"""Login through an identity provider (OpenID Connect)."""

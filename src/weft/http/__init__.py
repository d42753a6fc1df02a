"""HTTP: the gateway, authentication, limits, the server and the OpenAPI document."""

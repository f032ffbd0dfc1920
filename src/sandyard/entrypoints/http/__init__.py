"""The HTTP application: routes of all parts, middleware, errors and the OpenAPI document."""

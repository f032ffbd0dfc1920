"""Telemetry's endpoints: keys, bodies and parameters in, use cases called, JSON and files out."""

PREFIX = "/telemetry/v1"

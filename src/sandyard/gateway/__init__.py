"""The gateway: routes requests to ports of sandboxes and previews, one host name per port."""

"""The wall between claims and tenants: two processes, and the requests that pass between them."""

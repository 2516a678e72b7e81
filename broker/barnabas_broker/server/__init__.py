"""The port for clients: `connections` (bytes to requests), `dispatch` (requests to handlers), `handlers/`."""

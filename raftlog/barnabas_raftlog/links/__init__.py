"""How one node talks to another: connections, frames, datagrams, calls. Begin with `links`."""

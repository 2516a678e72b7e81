"""How the work of a broker shares one event loop: deadlines, and long work in short pieces."""

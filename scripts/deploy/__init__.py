"""Gets Barnabas onto machines: wheels, interpreters, and files for containers and systemd."""

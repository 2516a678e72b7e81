"""The workers of `exactly-once`, one program for each client library; `programs.py` makes them ready."""

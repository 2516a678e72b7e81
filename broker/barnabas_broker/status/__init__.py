"""The status of this broker: its event history, and the whole as bytes."""

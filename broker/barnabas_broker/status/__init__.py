"""What this broker tells of itself: its event history, and the whole of it as bytes."""

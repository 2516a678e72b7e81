"""Who leads what, as this broker sees it: silence, being cut off, and handing leaderships on."""

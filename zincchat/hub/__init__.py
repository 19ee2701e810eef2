"""Models of a Hugging Face hub: naming, choosing, pulling, and finding them in the hub's cache on this machine."""

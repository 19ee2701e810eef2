// The first key that the token at `position` sees: the newest `window` tokens are seen, its own among them; 0: all.
uint first_seen(uint position, uint window) { return window != 0u && position >= window ? position + 1u - window : 0u; }

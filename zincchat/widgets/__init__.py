"""One widget a file; its styles lie beside it."""

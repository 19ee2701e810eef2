"""Weight files and the forms in which the kernels read them."""

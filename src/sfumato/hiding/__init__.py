"""One file, one way to hide an attribute of images; there is no epsilon here."""

"""How a classifier learns from images that anyone may see."""

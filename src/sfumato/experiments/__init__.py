"""Recipes: many releases made, judged and compared, on one machine or on several."""

"""Texts to trees."""

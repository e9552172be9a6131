"""Reserved for the jail that runs code written by a model. Nothing is built here yet."""

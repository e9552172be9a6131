"""The command line `roll`. Every command is a module of its own, imported when it is called."""

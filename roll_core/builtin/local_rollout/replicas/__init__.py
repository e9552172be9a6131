"""The local engine in processes of its own: started, fed, given weights and replaced by the driver."""

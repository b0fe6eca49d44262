"""A code location: a shop's orders, from raw data to revenue, on Spark, in a lake with scheduled maintenance."""

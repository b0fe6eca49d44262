"""A code location: the orders of a shop, from raw to revenue, on Spark and in a lake that keeps itself in shape."""

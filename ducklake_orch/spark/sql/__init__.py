"""Spark's SQL on the tables of lakes: find their names in a statement, and give Spark a DataFrame for each."""

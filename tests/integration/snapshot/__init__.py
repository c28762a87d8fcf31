"""Tables read by Spark, from real nodes."""

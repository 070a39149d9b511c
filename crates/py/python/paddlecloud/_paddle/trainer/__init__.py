"""v1's package `paddle.trainer`."""

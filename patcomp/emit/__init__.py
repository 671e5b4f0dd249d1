"""Programs as `.aimodel` assets, and how to run and check them."""

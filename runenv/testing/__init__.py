"""What an implementation must do, as tests, and a fake to test against."""

"""What a run says: means by position with intervals, and stages of training."""

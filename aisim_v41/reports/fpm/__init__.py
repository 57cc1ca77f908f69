"""What is known of measured whole forwards of one identity: report, text, unseen steps."""

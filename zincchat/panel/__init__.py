"""What the side panel shows, computed from token records without any terminal."""

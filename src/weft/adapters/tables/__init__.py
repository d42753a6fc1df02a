"""Tables elsewhere that items are delivered to."""

"""Posts and events for search, list and API: `index` declares how they are found, `states` has
their words, colours and lines. `page` is the page of one, with a card for its timelines."""

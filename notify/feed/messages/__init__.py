"""Messages of Feed for search, list, page and API. `index` declares the search of posts and events,
`states` has the states and makes the lines of lists, `page` is the page of a post or an event."""

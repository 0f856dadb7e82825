"""Messages of Feed for search, list, page and API: `index` declares how posts and events are found,
`states` names their states and makes the lines of lists, and `page` is the page of one."""

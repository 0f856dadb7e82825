"""Messages of Notify for search, list, page and API: `index` declares how they are found, by which
`fields`, `lines` how a list shows them, `records` how the API does. `page` is the page of one
message, with a card for each delivery (`recipients`) and its reasons (`explanations`)."""

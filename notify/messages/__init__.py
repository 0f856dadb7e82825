"""Messages of Notify for search, list, page and API: `index` declares how they are found (`fields`,
`texts`), `lines` how a list shows them, `records` how the API does. `page` is the page of one
message, with a card for each delivery (`recipients`), the reasons for its state
(`explanations`) and the bulk jobs that may have resent it (`covering_jobs`)."""

module github.com/ormoutbox/ormoutbox/entoutbox

go 1.26.0

require github.com/ormoutbox/ormoutbox v0.0.0

require (
	entgo.io/ent v0.14.5
	github.com/google/uuid v1.3.0 // indirect
)

replace github.com/ormoutbox/ormoutbox => ../

module github.com/ormoutbox/ormoutbox/contractoutbox

go 1.26.0

require (
	github.com/google/jsonschema-go v0.4.3
	github.com/ormoutbox/ormoutbox v0.0.0
)

replace github.com/ormoutbox/ormoutbox => ../

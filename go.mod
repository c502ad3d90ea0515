module github.com/ormoutbox/ormoutbox

go 1.26.0

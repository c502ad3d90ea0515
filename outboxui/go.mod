module github.com/ormoutbox/ormoutbox/outboxui

go 1.26.0

require github.com/ormoutbox/ormoutbox v0.0.0

replace github.com/ormoutbox/ormoutbox => ../

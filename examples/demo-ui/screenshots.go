package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// screenshots waits until events have died, and takes pictures of the overview: light, dark, and on
// a phone.
func (p *page) screenshots(ctx context.Context, folder string) error {
	browser, err := exec.CommandContext(ctx, "scripts/chromium").Output()
	if err != nil {
		return fmt.Errorf("scripts/chromium: %w", err)
	}
	fmt.Println("waiting until events have died, at most a minute and a half")
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for dead := false; !dead || time.Now().Second() < 17; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		if dead, err = p.says(ctx, "Open the group"); err != nil {
			return err
		}
	}
	for _, shot := range []struct{ name, size, scheme string }{
		{"ui-light.png", "1280,1560", "1"}, {"ui-dark.png", "1280,1560", "0"}, {"ui-phone.png", "390,1500", "1"},
	} {
		file := filepath.Join(folder, shot.name)
		cmd := exec.CommandContext(ctx, strings.TrimSpace(string(browser)), "--headless", "--no-sandbox",
			"--disable-gpu", "--hide-scrollbars",
			"--window-size="+shot.size, "--blink-settings=preferredColorScheme="+shot.scheme, "--screenshot="+file,
			p.address+"shop/")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", shot.name, err, out)
		}
		fmt.Println(file)
	}
	return nil
}

// says reports whether the overview says something.
func (p *page) says(ctx context.Context, text string) (bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address+"shop/", nil)
	if err != nil {
		return false, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	return strings.Contains(string(page), text), err
}

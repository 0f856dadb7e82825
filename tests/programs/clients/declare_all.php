<?php

// Declares every class of a PHP client, so that each file is parsed and compiled and fits what it
// extends: `php declare_all.php FOLDER`. Prints how many there are. What they call of Guzzle is not
// looked at.
error_reporting(E_ALL);
set_error_handler(function (int $level, string $text, string $file, int $line): never {
    throw new ErrorException($text, 0, $level, $file, $line);
});
spl_autoload_register(function (string $name) use ($argv): void {
    require $argv[1] . '/lib' . strtr(substr($name, strlen('Msgplatform\Client')), '\\', '/') . '.php';
});
$count = 0;
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator($argv[1] . '/lib')) as $file) {
    if ($file->getExtension() === 'php') {
        require_once $file->getPathname();
        $count++;
    }
}
echo $count, "\n";

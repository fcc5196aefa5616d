/* The agent's filter by itself, without an engine's: what each system call named by its number answers. */
#include "filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (install_filter() < 0) {
        perror("install_filter");
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        long numbers[4] = {0};
        char *at = argv[i];
        for (int n = 0; n < 4 && *at; n++) {
            numbers[n] = strtol(at, &at, 0);
            if (*at == ',') at++;
        }
        errno = 0;
        long returned = syscall(numbers[0], numbers[1], numbers[2], numbers[3], 0, 0, 0);
        printf("%s %d\n", argv[i], returned < 0 ? errno : 0);
    }
    return 0;
}

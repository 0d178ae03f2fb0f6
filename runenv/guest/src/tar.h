/* A tar header, in the GNU variant: long names in entries of their own, large numbers in base 256. */
#ifndef TAR_H
#define TAR_H

enum { BLOCK = 512 };

struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[8];
    char user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

static inline unsigned tar_checksum(const struct tar_header *h) {
    const unsigned char *at = (const unsigned char *)h;
    unsigned sum = 0;
    for (unsigned i = 0; i < sizeof *h; i++)
        sum += i >= offsetof(struct tar_header, checksum) && i < offsetof(struct tar_header, type) ? ' ' : at[i];
    return sum;
}

#endif
